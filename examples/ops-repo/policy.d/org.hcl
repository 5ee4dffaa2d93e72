# The ceiling. Only the security team approves changes here (CODEOWNERS).
org {
  use = ["packages"]

  # The one model that is paid for.
  allow "api.openai.com" {}
  # Source code and issues.
  allow "api.github.com" {}
  # Clones, and pushes where a sandbox's own rule says so.
  git "github.com/acme/*" { access = "write" }

  # Tunnels, for everybody and without exception.
  deny "*.ngrok.io" { reason = "Tunnels are not permitted. Ask #sec-egress." }
}
