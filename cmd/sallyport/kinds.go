package main

import (
	"fmt"
	"time"

	"sallyport/gateway/inject"
	"sallyport/policy"
	"sallyport/policy/policyfile"
	"sallyport/secrets"
	"sallyport/secrets/age"
	"sallyport/secrets/awssm"
	"sallyport/secrets/clientcert"
	"sallyport/secrets/env"
	"sallyport/secrets/exec"
	"sallyport/secrets/file"
	"sallyport/secrets/gcpjwt"
	"sallyport/secrets/githubapp"
	"sallyport/secrets/oauth2"
	"sallyport/secrets/vault"
)

// sourceKind is one kind of secret source: what a policy file may say of it,
// and how it is made.
type sourceKind struct {
	schema policyfile.Schema
	open   func(a attributes) (secrets.Source, error)

	// What the source reads, which a sandbox on this host must not.
	files     func(a attributes) []string // nil: none
	variables func(a attributes) []string // nil: none
	passes    func(a attributes) []string // variables with which it fetches; nil: none

	command  func(a attributes) []string // what it runs; nil: nothing
	written  func(a attributes) []string // those of its files that it writes itself; nil: none
	searches bool                        // it may run a program that it looks for in PATH

	local bool                    // it is read from this machine, at once
	slow  func(a attributes) bool // somebody may have to do something before it is; nil: never

	// How the value is used, when it is not put in a placeholder's place.
	use    func(a attributes, s *inject.Secret) // nil: it is
	unsent bool                                 // it stands nowhere in a request, and so has no places
}

// misplaced says what a secret must not say whose value is never sent; ""
// for nothing.
func (k sourceKind) misplaced(s policy.Secret) string {
	if !k.unsent {
		return ""
	}
	switch {
	case len(s.Headers) > 0:
		return "headers"
	case len(s.Query) > 0:
		return "query"
	case s.Path:
		return "path"
	case s.Body != nil:
		return "body"
	case s.WebSocket:
		return "websocket"
	case s.Set:
		return "set"
	}
	return ""
}

// sourceKinds are the kinds of secret source, by the label of the block.
func sourceKinds() map[string]sourceKind {
	text, list, span := policyfile.String, policyfile.StringList, policyfile.Duration
	return map[string]sourceKind{
		"env": {
			schema: schema(attr("name", text, true)),
			open: func(a attributes) (secrets.Source, error) {
				return env.New(env.Config{Name: a.text("name")})
			},
			variables: func(a attributes) []string { return []string{a.text("name")} },
			local:     true,
		},
		"file": {
			schema: schema(attr("path", text, true)),
			open: func(a attributes) (secrets.Source, error) {
				return file.New(file.Config{Path: a.text("path")})
			},
			files: func(a attributes) []string { return []string{a.text("path")} },
			local: true,
		},
		"exec": {
			schema: schema(attr("command", list, true), attr("ttl", span, false), attr("timeout", span, false), attr("env", list, false)),
			open: func(a attributes) (secrets.Source, error) {
				return exec.New(exec.Config{Command: a.list("command"), TTL: a.duration("ttl"), Timeout: a.duration("timeout"), Env: a.list("env")})
			},
			passes:  func(a attributes) []string { return a.list("env") },
			command: func(a attributes) []string { return a.list("command") },
		},
		"vault": {
			schema: schema(attr("address", text, true), attr("path", text, true), attr("field", text, false), attr("namespace", text, false),
				attr("mount", text, false), attr("ca_file", text, false), attr("ttl", span, false),
				attr("token_file", text, false), attr("token_env", text, false),
				attr("role_id", text, false), attr("secret_id_file", text, false),
				attr("kubernetes_role", text, false), attr("jwt_file", text, false), attr("auth_mount", text, false)),
			open:      openVault,
			files:     func(a attributes) []string { return a.texts("token_file", "secret_id_file", "jwt_file") },
			variables: func(a attributes) []string { return a.texts("token_env") },
		},
		"awssm": {
			schema: schema(attr("id", text, true), attr("region", text, true), attr("field", text, false), attr("endpoint", text, false),
				attr("ttl", span, false), attr("profile", text, false), attr("credentials_file", text, false), attr("instance", policyfile.Bool, false)),
			open: func(a attributes) (secrets.Source, error) {
				instance, given := a["instance"].(bool)
				return awssm.New(awssm.Config{ID: a.text("id"), Region: a.text("region"), Field: a.text("field"), Endpoint: a.text("endpoint"),
					TTL: a.duration("ttl"), Profile: a.text("profile"), CredentialsFile: a.text("credentials_file"), NoInstance: given && !instance})
			},
			files: func(a attributes) []string { return a.texts("credentials_file") },
			variables: func(attributes) []string {
				return []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
			},
		},
		"aws": {
			schema: schema(attr("profile", text, false), attr("credentials_file", text, false), attr("instance", policyfile.Bool, false),
				attr("services", list, false), attr("regions", list, false)),
			open: func(a attributes) (secrets.Source, error) {
				instance, given := a["instance"].(bool)
				return awssm.NewCredentials(awssm.Config{Profile: a.text("profile"), CredentialsFile: a.text("credentials_file"), NoInstance: given && !instance})
			},
			files: func(a attributes) []string { return a.texts("credentials_file") },
			variables: func(attributes) []string {
				return []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
			},
			use: func(a attributes, s *inject.Secret) {
				s.Sign = &inject.Signing{Services: a.list("services"), Regions: a.list("regions")}
			},
			unsent: true,
		},
		"oauth2": {
			schema: schema(attr("token_url", text, true), attr("client_id", text, true), attr("grant", text, false),
				attr("client_secret_file", text, false), attr("refresh_token_file", text, false), attr("scopes", list, false),
				attr("audience", text, false), attr("params", policyfile.StringMap, false), attr("in_body", policyfile.Bool, false), attr("ca_file", text, false)),
			open: openOAuth2,
			files: func(a attributes) []string {
				files := a.texts("client_secret_file", "refresh_token_file")
				for _, path := range a.texts("refresh_token_file") {
					files = append(files, oauth2.NextFile(path))
				}
				return files
			},
			written: func(a attributes) []string { return a.texts("refresh_token_file") },
			use:     func(a attributes, s *inject.Secret) { s.TokenURL = a.text("token_url") },
		},
		"github_app": {
			schema: schema(attr("app_id", text, true), attr("installation_id", policyfile.Int, true), attr("key_file", text, true),
				attr("repositories", list, false), attr("permissions", policyfile.StringMap, false), attr("api", text, false), attr("ca_file", text, false)),
			open: func(a attributes) (secrets.Source, error) {
				return githubapp.New(githubapp.Config{AppID: a.text("app_id"), InstallationID: a.number("installation_id"), KeyFile: a.text("key_file"),
					Repositories: a.list("repositories"), Permissions: a.pairs("permissions"), API: a.text("api"), CAFile: a.text("ca_file")})
			},
			files: func(a attributes) []string { return a.texts("key_file") },
		},
		"gcp_jwt": {
			schema: schema(attr("key_file", text, true), attr("audience", text, false), attr("scopes", list, false),
				attr("exchange", policyfile.Bool, false), attr("ca_file", text, false)),
			open: func(a attributes) (secrets.Source, error) {
				return gcpjwt.New(gcpjwt.Config{KeyFile: a.text("key_file"), Audience: a.text("audience"), Scopes: a.list("scopes"),
					Exchange: a.flag("exchange"), CAFile: a.text("ca_file")})
			},
			files: func(a attributes) []string { return a.texts("key_file") },
		},
		"client_cert": {
			schema: schema(attr("cert_file", text, true), attr("key_file", text, false)),
			open: func(a attributes) (secrets.Source, error) {
				return clientcert.New(clientcert.Config{CertFile: a.text("cert_file"), KeyFile: a.text("key_file")})
			},
			files:  func(a attributes) []string { return a.texts("cert_file", "key_file") },
			use:    func(_ attributes, s *inject.Secret) { s.Certificate = true },
			unsent: true,
			local:  true,
		},
		"age": {
			schema:   schema(attr("path", text, true), attr("identity", text, true), attr("key", text, false)),
			open:     func(a attributes) (secrets.Source, error) { return age.New(ageConfig(a)) },
			files:    func(a attributes) []string { return a.texts("path", "identity") },
			searches: true,
			local:    true,
			slow:     func(a attributes) bool { return age.AsksPlugin(a.text("identity")) },
		},
	}
}

func ageConfig(a attributes) age.Config {
	return age.Config{Path: a.text("path"), Identity: a.text("identity"), Key: a.text("key")}
}

func openOAuth2(a attributes) (secrets.Source, error) {
	return oauth2.New(oauth2.Config{TokenURL: a.text("token_url"), Grant: a.text("grant"), ClientID: a.text("client_id"),
		ClientSecretFile: a.text("client_secret_file"), RefreshTokenFile: a.text("refresh_token_file"), Scopes: a.list("scopes"),
		Audience: a.text("audience"), Params: a.pairs("params"), InBody: a.flag("in_body"), CAFile: a.text("ca_file")})
}

func openVault(a attributes) (secrets.Source, error) {
	c := vault.Config{Address: a.text("address"), Namespace: a.text("namespace"), Path: a.text("path"), Mount: a.text("mount"),
		Field: a.text("field"), TTL: a.duration("ttl"), CAFile: a.text("ca_file"), TokenFile: a.text("token_file"), TokenEnv: a.text("token_env")}
	if a.text("role_id") != "" {
		c.AppRole = &vault.AppRole{Mount: a.text("auth_mount"), RoleID: a.text("role_id"), SecretIDFile: a.text("secret_id_file")}
	}
	if a.text("kubernetes_role") != "" {
		c.Kubernetes = &vault.Kubernetes{Mount: a.text("auth_mount"), Role: a.text("kubernetes_role"), JWTFile: a.text("jwt_file")}
	}
	return vault.New(c)
}

func schema(attrs ...policyfile.Attr) policyfile.Schema { return policyfile.Schema{Attrs: attrs} }

func attr(name string, t policyfile.AttrType, required bool) policyfile.Attr {
	return policyfile.Attr{Name: name, Type: t, Required: required}
}

// policyOptions are what policy files may hold besides policy.
func policyOptions() policyfile.Options {
	o := policyfile.Options{Sources: map[string]policyfile.Schema{}, Sinks: map[string]policyfile.Schema{}, Check: checkForms}
	for name, k := range sourceKinds() {
		o.Sources[name] = k.schema
	}
	for name, k := range sinkKinds() {
		o.Sinks[name] = k.schema
	}
	return o
}

// openSource makes the source that a policy names. Its attributes were
// checked against the kind's schema when the policy was read.
func openSource(s policy.Source, p *pins) (secrets.Source, error) {
	if _, ok := sourceKinds()[s.Kind]; !ok {
		return nil, fmt.Errorf("unknown kind of source %q", s.Kind)
	}
	return p.source(s.Kind, s.Attrs)
}

// attributes are the values in a source block.
type attributes map[string]any

func (a attributes) text(name string) string { s, _ := a[name].(string); return s }

// texts are those of the named attributes that are given.
func (a attributes) texts(names ...string) []string {
	var out []string
	for _, n := range names {
		if s := a.text(n); s != "" {
			out = append(out, s)
		}
	}
	return out
}

func (a attributes) list(name string) []string { l, _ := a[name].([]string); return l }

func (a attributes) flag(name string) bool { b, _ := a[name].(bool); return b }

func (a attributes) duration(name string) time.Duration { d, _ := a[name].(time.Duration); return d }
