secret "OPENAI_API_KEY" {
  hosts = ["api.openai.com"]
  source "file" { path = "/run/secrets/openai" }
}

secret "GITHUB_TOKEN" {
  hosts       = ["api.github.com", "github.com"]
  placeholder = "ghp_{rand:36}"
  source "exec" {
    command = ["/usr/local/bin/mint-token", "acme/app"]
    ttl     = "50m"
  }
}
