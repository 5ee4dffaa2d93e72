# Claude Code with an API key:
#
#   sallyport run --policy examples/agents/claude-code.hcl -- claude
#
# Left out on purpose: statsig.anthropic.com, sentry.io (usage and error
# reports; DISABLE_TELEMETRY=1 and DISABLE_ERROR_REPORTING=1 stop the attempts),
# downloads.claude.ai and storage.googleapis.com (updates; update outside).

secret "ANTHROPIC_API_KEY" {
  hosts       = ["api.anthropic.com"]
  placeholder = "sk-ant-api03-{rand:48}" # the client looks at the key's form
  source "env" { name = "ANTHROPIC_API_KEY" }
}

sandbox "claude-code" {
  # The model, and the settings the client asks the same host for. Somebody
  # else's key is stripped, so nothing can be sent to another account.
  allow "api.anthropic.com" {
    methods = ["GET", "HEAD", "POST"]
    inject  = ["ANTHROPIC_API_KEY"]
  }

  # To sign in with an account in place of a key, allow the hosts of the
  # sign-in too. The session's token is then kept inside the sandbox.
  #
  # allow "claude.ai" {}
  # allow "platform.claude.com" {}
}
