# Gemini CLI with an API key:
#
#   sallyport run --policy examples/agents/gemini-cli.hcl -- gemini
#
# Left out on purpose: play.googleapis.com (usage statistics), and
# oauth2.googleapis.com with cloudcode-pa.googleapis.com (signing in with a
# Google account, whose token would be kept inside the sandbox).

secret "GEMINI_API_KEY" {
  hosts       = ["generativelanguage.googleapis.com"]
  placeholder = "AIza{rand:35}" # the client looks at the key's form
  source "env" { name = "GEMINI_API_KEY" }
}

sandbox "gemini-cli" {
  # The model. The call is part of the last segment, as in
  # /v1beta/models/NAME:streamGenerateContent. Not the upload of files.
  allow "generativelanguage.googleapis.com" {
    methods = ["GET", "POST"]
    paths   = ["/v1beta/models", "/v1beta/models/*", "/v1/models", "/v1/models/*"]
    inject  = ["GEMINI_API_KEY"]
  }
}
