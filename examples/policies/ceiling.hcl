# A ceiling and two sandboxes below it. Load it with the groups that it uses:
#
#   cd examples
#   sallyport run --policy policies/ceiling.hcl --policy groups/python.hcl \
#     --policy groups/javascript.hcl --policy groups/github.hcl --sandbox ci -- make test
#
# A sandbox or a group that allows what no rule of the org covers fails the
# load. The org block belongs in a file that only its owners may change.

org {
  use = ["python", "javascript", "github_read"]

  # The one model that is paid for.
  allow "api.openai.com" {}

  # Tunnels and request catchers, for everybody and without exception.
  deny "*.ngrok.io" {
    reason = "Tunnels are not permitted. Ask the security team."
    alert  = "high"
  }
  # The same, by another name.
  deny "webhook.site" { reason = "Request catchers are not permitted." }
}

secret "OPENAI_API_KEY" {
  hosts = ["api.openai.com"]
  source "env" { name = "OPENAI_API_KEY" }
}

# Continuous integration: packages and sources, no model.
sandbox "ci" {
  use = ["python", "javascript", "github_read"]
}

# An agent: the model, and packages.
sandbox "agent" {
  use = ["python"]

  # The model, with a budget.
  allow "api.openai.com" {
    methods = ["POST"]
    paths   = ["/v1/responses"]
    inject  = ["OPENAI_API_KEY"]
    limits {
      requests_per_minute = 60
      bytes_sent_per_day  = "200MiB"
    }
  }
}
