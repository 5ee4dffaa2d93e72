# Private Go modules behind a module proxy.
secret "GO_PROXY_TOKEN" {
  hosts = ["go.acme.example"]
  source "file" { path = "/etc/sallyport/secrets/go" }
}

sandbox "build" {
  allow "go.acme.example" {
    access = "read"
    inject = ["GO_PROXY_TOKEN"]
  }
}
