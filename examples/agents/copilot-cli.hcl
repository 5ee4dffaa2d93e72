# GitHub Copilot CLI with a fine-grained token that has the permission "Copilot
# requests":
#
#   sallyport run --policy examples/agents/copilot-cli.hcl -- copilot
#
# Left out on purpose: collector.github.com, copilot-telemetry.githubusercontent.com
# and default.exp-tas.com (usage reports and experiments), and github.com
# (signing in on the spot; reading repositories is a rule of its own, see
# ../policies/github-read-only.hcl).

secret "COPILOT_GITHUB_TOKEN" {
  hosts       = ["api.github.com", "*.githubcopilot.com"]
  placeholder = "github_pat_{rand:72}" # the client looks at the token's form
  source "env" { name = "COPILOT_GITHUB_TOKEN" }
}

sandbox "copilot-cli" {
  # Who the token belongs to, and what plan they have.
  allow "api.github.com" {
    methods = ["GET", "POST"]
    paths   = ["/user", "/copilot_internal/**"]
    inject  = ["COPILOT_GITHUB_TOKEN"]
  }
  # The models: api.githubcopilot.com, and a name below individual, business or
  # enterprise by plan. The service may give the client a session token in
  # exchange for the first, so tokens that are not the gateway's pass here.
  allow "*.githubcopilot.com" {
    methods = ["GET", "POST", "DELETE"]
    inject  = ["COPILOT_GITHUB_TOKEN"]
    foreign = "pass"
  }
}
