# aider with a key of OpenAI, of Anthropic, or both:
#
#   sallyport run --policy examples/agents/aider.hcl -- aider
#
# Left out on purpose: us.i.posthog.com (analytics; --analytics-disable).

secret "OPENAI_API_KEY" {
  hosts       = ["api.openai.com"]
  placeholder = "sk-proj-{rand:48}"
  source "env" { name = "OPENAI_API_KEY" }
}

secret "ANTHROPIC_API_KEY" {
  hosts       = ["api.anthropic.com"]
  placeholder = "sk-ant-api03-{rand:48}"
  source "env" { name = "ANTHROPIC_API_KEY" }
}

sandbox "aider" {
  # OpenAI's models.
  allow "api.openai.com" {
    methods = ["GET", "POST"]
    paths   = ["/v1/chat/completions", "/v1/responses", "/v1/models", "/v1/models/*"]
    inject  = ["OPENAI_API_KEY"]
  }
  # Anthropic's models.
  allow "api.anthropic.com" {
    methods = ["GET", "POST"]
    paths   = ["/v1/messages", "/v1/messages/count_tokens", "/v1/models", "/v1/models/*"]
    inject  = ["ANTHROPIC_API_KEY"]
  }
  # The table of models and prices that is loaded at the start.
  allow "raw.githubusercontent.com" {
    access = "read"
    paths  = ["/BerriAI/litellm/main/**"]
  }
  # The check for a new version.
  allow "pypi.org" {
    access = "read"
    paths  = ["/pypi/aider-chat/json"]
  }
}
