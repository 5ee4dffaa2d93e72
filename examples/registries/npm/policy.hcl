# npm with a private registry. The token is sent to the registry alone.
secret "NPM_TOKEN" {
  hosts = ["npm.acme.example"]
  source "file" { path = "/etc/sallyport/secrets/npm" }
}

sandbox "build" {
  # Reading only: `npm publish` is refused.
  allow "npm.acme.example" {
    access        = "read"
    encoded_slash = true # scoped packages are asked for as /@acme%2fname
    inject        = ["NPM_TOKEN"]
  }
}
