# git over HTTPS, for reading one organisation's repositories.
secret "GIT_TOKEN" {
  hosts = ["git.acme.example"]
  source "file" { path = "/etc/sallyport/secrets/git" }
}

sandbox "build" {
  git "git.acme.example/acme/*" {
    access = "read" # a push is refused
    inject = ["GIT_TOKEN"]
  }
}
