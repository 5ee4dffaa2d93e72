# The APIs of language models. Each is the API alone: no console, no telemetry.
# A rule of your own for the same host injects the key.

group "anthropic" {
  # Messages, models, files.
  allow "api.anthropic.com" {
    methods = ["GET", "POST", "DELETE"]
    paths   = ["/v1/**"]
  }
}

group "openai" {
  # Responses, chat, embeddings, files.
  allow "api.openai.com" {
    methods = ["GET", "POST", "DELETE"]
    paths   = ["/v1/**"]
  }
}

group "gemini" {
  # Google's Gemini API.
  allow "generativelanguage.googleapis.com" {
    methods = ["GET", "POST"]
    paths   = ["/v1/**", "/v1beta/**"]
  }
}

group "mistral" {
  # Chat, embeddings, models.
  allow "api.mistral.ai" {
    methods = ["GET", "POST"]
    paths   = ["/v1/**"]
  }
}

group "openrouter" {
  # Many models behind one API.
  allow "openrouter.ai" {
    methods = ["GET", "POST"]
    paths   = ["/api/v1/**"]
  }
}
