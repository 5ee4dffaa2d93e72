package inject

import (
	"cmp"
	"slices"

	"sallyport/policy"
)

// Actions of a Use.
const (
	Injected = "injected" // a placeholder is replaced by the value, or the value added
	Withheld = "withheld" // a placeholder was found and not replaced
	Stripped = "stripped" // a foreign credential is removed
	Masked   = "masked"   // a value was found in a response and covered
)

// Use is what became of one credential in one place of a request.
type Use struct {
	Name    string // of the secret; "" for a foreign credential
	Place   string // "header Authorization", "basic Authorization", "path", …
	Action  string
	Count   int
	Sandbox string // whose placeholder it is, when it is another sandbox's and known; not for the asking sandbox's eyes
}

// Refusal says why a request must not go out. Message is for the sandbox: it
// names places, and no secret that the request did not name.
type Refusal struct {
	Reason  policy.Reason
	Message string
	Uses    []Use
}

// Error returns the reason and the message.
func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.Message }

// uses collects Uses, one for each name, place and action.
type uses []Use

func (u *uses) add(n Use) { u.addMany(n, 1) }

func (u *uses) addMany(n Use, count int) {
	n.Count = count
	for i := range *u {
		o := &(*u)[i]
		if o.Name == n.Name && o.Place == n.Place && o.Action == n.Action && o.Sandbox == n.Sandbox {
			o.Count += count
			return
		}
	}
	*u = append(*u, n)
}

// sorted returns u in an order that does not depend on that of a map.
func (u uses) sorted() []Use {
	slices.SortFunc(u, func(a, b Use) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Place, b.Place), cmp.Compare(a.Action, b.Action))
	})
	return u
}

// Unsent returns what became of the uses of a request that does not go out:
// nothing of it was put in or taken out anywhere.
func Unsent(list []Use) []Use {
	var out uses
	for _, u := range list {
		if u.Action == Injected || u.Action == Stripped {
			u.Action = Withheld
		}
		out.addMany(u, u.Count)
	}
	return out.sorted()
}

// severity orders the reasons for which one request can be refused at once;
// the gravest is the one that is given.
func severity(r policy.Reason) int {
	return slices.Index([]policy.Reason{
		"", // not refused
		policy.MethodNotAllowed,
		policy.UninspectableBody,
		policy.BodyTooLarge,
		policy.ForeignCredential,
		policy.Smuggling,
		policy.PlaceholderPlace,
		policy.PlaintextInjection,
		policy.PlaceholderLeak,
	}, r)
}
