secret "GITHUB_TOKEN" {
  hosts = ["api.github.com"]
  source "file" { path = "/run/secrets/github" }
}

sandbox "ci" {
  allow "api.github.com" {
    access = "read"
    inject = ["GITHUB_TOKEN"]
  }
}
