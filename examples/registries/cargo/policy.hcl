# cargo with a private registry (sparse index). The secret has the name of the
# variable that cargo reads, and so needs no configuration inside.
secret "CARGO_REGISTRIES_ACME_TOKEN" {
  hosts = ["cargo.acme.example"]
  source "file" { path = "/etc/sallyport/secrets/cargo" }
}

sandbox "build" {
  allow "cargo.acme.example" {
    access = "read"
    inject = ["CARGO_REGISTRIES_ACME_TOKEN"]
  }
}
