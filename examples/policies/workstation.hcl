# A developer's machine with every ready-made group. Load it with the groups:
#
#   cd examples
#   sallyport run --policy policies/workstation.hcl --policy groups -- bash

secret "ANTHROPIC_API_KEY" {
  hosts = ["api.anthropic.com"]
  source "env" { name = "ANTHROPIC_API_KEY" }
}

secret "OPENAI_API_KEY" {
  hosts = ["api.openai.com"]
  source "env" { name = "OPENAI_API_KEY" }
}

sandbox "workstation" {
  use = [
    "anthropic", "debian", "docker_hub", "gemini", "ghcr", "github_read", "github_write", "go", "javascript",
    "mistral", "openai", "openrouter", "python", "rust",
  ]

  # The model that writes, with its key.
  allow "api.anthropic.com" {
    methods = ["POST"]
    paths   = ["/v1/messages"]
    inject  = ["ANTHROPIC_API_KEY"]
  }
  # The model that reviews, with its key.
  allow "api.openai.com" {
    methods = ["POST"]
    paths   = ["/v1/responses"]
    inject  = ["OPENAI_API_KEY"]
    limits { requests_per_minute = 30 }
  }
  limits {
    requests_per_minute = 600
    bytes_sent_per_day  = "500MiB"
  }
}
