# Codex CLI with an API key:
#
#   sallyport run --policy examples/agents/codex.hcl -- codex
#
# Left out on purpose: chatgpt.com and auth.openai.com (signing in with a
# ChatGPT account, whose token would be kept inside the sandbox), and
# github.com (the update notice).

secret "OPENAI_API_KEY" {
  hosts       = ["api.openai.com"]
  placeholder = "sk-proj-{rand:48}" # the client looks at the key's form
  source "env" { name = "OPENAI_API_KEY" }
}

sandbox "codex" {
  # The model: requests and answers, over HTTP or a WebSocket, and the list of
  # models. Not files, batches or fine-tuning.
  allow "api.openai.com" {
    methods = ["GET", "POST"]
    paths   = ["/v1/responses", "/v1/responses/**", "/v1/models", "/v1/models/*"]
    inject  = ["OPENAI_API_KEY"]
  }
}
