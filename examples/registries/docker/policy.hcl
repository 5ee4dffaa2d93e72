# Pulling private images. The credential goes to the token service alone; the
# registry gets the token that the service gives for one repository.
secret "REGISTRY_PASSWORD" {
  hosts = ["auth.acme.example"]
  source "file" { path = "/etc/sallyport/secrets/registry" }
}

sandbox "build" {
  allow "registry.acme.example" { access = "read" }
  allow "auth.acme.example" {
    access = "read"
    paths  = ["/token"]
    inject = ["REGISTRY_PASSWORD"]
  }
}
