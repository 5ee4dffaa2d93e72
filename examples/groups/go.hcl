# Go modules and toolchains.
group "go" {
  # Modules, and the toolchains that go.mod asks for.
  allow "proxy.golang.org" { access = "read" }
  # The checksum database.
  allow "sum.golang.org" { access = "read" }
  # Downloads of toolchains, which proxy.golang.org redirects to.
  allow "storage.googleapis.com" {
    access = "read"
    paths  = ["/proxy-golang-org-prod/**"]
  }
}
