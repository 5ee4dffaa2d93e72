// Package policyfile reads policy files: HCL 2 in, a [policy.Document] and
// [Diagnostics] out.
//
// It reads strictly. A block or attribute that the language does not have is
// an error, an expression that is not a literal is an error, a list that is
// written but empty is an error where an absent one would mean "any", and all
// problems of all files are reported at once. The package checks the form of
// what stands in the files; what it means (hosts, paths, references, the
// ceiling) is checked by [policy.Compile], whose problems [LoadSet] shows in
// the same way.
//
// Values that have a form of their own:
//
//   - time: RFC 3339 ("2026-12-31T18:00:00Z"), or a day ("2026-12-31"), which
//     is its first instant in UTC. A rule that expires on a day is void from
//     00:00 UTC of that day on.
//   - duration: Go's ("90s", "1h30m"), or whole days ("30d"). Never zero.
//   - size: a whole number and a unit ("512KiB", "1MiB", "10MB"), or a plain
//     number of bytes. Never zero.
//   - address range: a CIDR ("10.0.12.0/24") whose host bits are zero, or one
//     address.
package policyfile
