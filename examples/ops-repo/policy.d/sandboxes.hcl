# Every team's CI job is the same sandbox for its own repository.
locals {
  repositories = ["app", "website"]
}

dynamic "sandbox" {
  for_each = local.repositories
  iterator = repository
  labels   = ["ci-${repository.value}"]
  content {
    use = ["packages"]

    # The job's own repository, read only.
    allow "api.github.com" {
      access = "read"
      paths  = ["/repos/acme/${repository.value}/**"]
      inject = ["GITHUB_TOKEN"]
    }
    # Clones of its own repository.
    dynamic "git" {
      for_each = [repository.value]
      labels   = ["github.com/acme/${git.value}"]
      content { inject = ["GITHUB_TOKEN"] }
    }
  }
}

# The agent that fixes issues.
sandbox "agent" {
  use = ["packages"]

  # The model, with a budget.
  allow "api.openai.com" {
    methods = ["POST"]
    paths   = ["/v1/responses"]
    inject  = ["OPENAI_API_KEY"]
    limits { requests_per_minute = 60 }
  }
  # Reading issues, and commenting on them.
  allow "api.github.com" {
    methods = ["GET", "POST"]
    paths   = ["/repos/acme/app/issues/**"]
    inject  = ["GITHUB_TOKEN"]
  }
  # Its branches.
  git "github.com/acme/app" {
    access = "write"
    inject = ["GITHUB_TOKEN"]
  }
}
