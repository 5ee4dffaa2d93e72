# pip with a private index. The token is the password of Basic.
secret "PYPI_TOKEN" {
  hosts = ["pypi.acme.example"]
  source "file" { path = "/etc/sallyport/secrets/pypi" }
}

sandbox "build" {
  allow "pypi.acme.example" {
    access = "read"
    inject = ["PYPI_TOKEN"]
  }
}
