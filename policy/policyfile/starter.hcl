# A starter policy. Everything that is not allowed here is refused, and the
# refusal is in the audit log:
#
#   sallyport run --policy THIS-FILE --sandbox agent -- your-agent
#   sallyport tail -f --blocked
#
# Order does not matter. A deny wins over every allow.

# The ceiling: what any sandbox may be allowed at most. A sandbox that allows
# more than this does not load. Remove the block to have no ceiling.
org {
  use = ["package_registries", "github_read"]

  allow "api.anthropic.com" {}
  allow "api.openai.com" {}

  # Services that hand data on to somebody else are refused everywhere.
  deny "*.ngrok.io" { reason = "Tunnels are not permitted." }
  deny "webhook.site" { reason = "Request catchers are not permitted." }
}

# A group is a list of rules with a name, for the org and for any sandbox.
group "package_registries" {
  # access = "read" is GET, HEAD and OPTIONS: install, but never publish.
  allow "pypi.org" { access = "read" }               # index of Python packages
  allow "files.pythonhosted.org" { access = "read" } # their files
  allow "registry.npmjs.org" {
    access        = "read" # npm packages
    encoded_slash = true   # scoped packages are asked for as /@scope%2fname
  }
  allow "proxy.golang.org" { access = "read" } # Go modules
  allow "sum.golang.org" { access = "read" }   # their checksums
  allow "index.crates.io" { access = "read" }  # index of Rust crates
  allow "static.crates.io" { access = "read" } # their files
}

group "github_read" {
  allow "api.github.com" { access = "read" }
  allow "raw.githubusercontent.com" { access = "read" }
  allow "codeload.github.com" { access = "read" } # archives of repositories
}

# A secret's value stays with the gateway. Inside the sandbox the environment
# variable of this name holds a placeholder, and the placeholder is replaced
# on its way to these hosts only, over verified HTTPS only.
secret "ANTHROPIC_API_KEY" {
  hosts = ["api.anthropic.com"]
  source "env" { name = "ANTHROPIC_API_KEY" }
}

# Another model, and a key that is read from a file:
#
# secret "OPENAI_API_KEY" {
#   hosts = ["api.openai.com"]
#   source "file" { path = "/run/secrets/openai" }
# }

sandbox "agent" {
  use = ["package_registries", "github_read"]

  # The model. Only the paths that an agent calls.
  allow "api.anthropic.com" {
    methods = ["GET", "POST"]
    paths   = ["/v1/messages", "/v1/messages/**", "/v1/models", "/v1/models/*"]
    inject  = ["ANTHROPIC_API_KEY"]
  }

  # allow "api.openai.com" {
  #   methods = ["POST"]
  #   paths   = ["/v1/responses", "/v1/chat/completions"]
  #   inject  = ["OPENAI_API_KEY"]
  # }

  # A database on a private network: raw TCP, and the range must be named.
  # (An org block must allow it too.)
  #
  # tcp "db.internal.example.com:5432" {
  #   addresses = ["10.0.12.0/24"]
  # }

  # To see what would be refused without refusing it: mode = "report"
}
