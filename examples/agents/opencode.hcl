# opencode with a key of Anthropic:
#
#   sallyport run --policy examples/agents/opencode.hcl -- opencode
#
# For another provider put its host and key in place of Anthropic's. Left out
# on purpose: opencode.ai (its own models and shared sessions), github.com and
# api.github.com (updates, language servers fetched on demand).

secret "ANTHROPIC_API_KEY" {
  hosts       = ["api.anthropic.com"]
  placeholder = "sk-ant-api03-{rand:48}"
  source "env" { name = "ANTHROPIC_API_KEY" }
}

sandbox "opencode" {
  # The model.
  allow "api.anthropic.com" {
    methods = ["GET", "POST"]
    paths   = ["/v1/messages", "/v1/messages/count_tokens", "/v1/models", "/v1/models/*"]
    inject  = ["ANTHROPIC_API_KEY"]
  }
  # The catalogue of providers and models that is loaded at the start.
  allow "models.dev" {
    access = "read"
    paths  = ["/api.json"]
  }
  # Packages of providers and plug-ins, installed on first use.
  allow "registry.npmjs.org" {
    access        = "read"
    encoded_slash = true # scoped packages are asked for as /@scope%2fname
  }
}
