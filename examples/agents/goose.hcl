# goose with a key of OpenAI:
#
#   sallyport run --policy examples/agents/goose.hcl -- goose session
#
# For another provider put its host and key in place of OpenAI's. Left out on
# purpose: us.i.posthog.com (usage reports; GOOSE_TELEMETRY_OFF=1). Where there
# is no key ring, set GOOSE_DISABLE_KEYRING=1.

secret "OPENAI_API_KEY" {
  hosts       = ["api.openai.com"]
  placeholder = "sk-proj-{rand:48}"
  source "env" { name = "OPENAI_API_KEY" }
}

sandbox "goose" {
  # The model.
  allow "api.openai.com" {
    methods = ["GET", "POST"]
    paths   = ["/v1/chat/completions", "/v1/responses", "/v1/models", "/v1/models/*"]
    inject  = ["OPENAI_API_KEY"]
  }
}
