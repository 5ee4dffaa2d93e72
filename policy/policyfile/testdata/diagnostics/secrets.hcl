secret "PASTED" {
  hosts = ["api.example.com"]
  value = "sk-live-0123456789abcdef"
  source "env" {
    name  = "API_KEY"
    token = "sk-live-0123456789abcdef"
  }
}
secret "NOTHING" {
}
secret "KINDS" {
  hosts = ["api.example.com"]
  source "vualt" { address = "https://vault.example.com" }
}
secret "FORMS" {
  hosts       = "api.example.com"
  placeholder = ""
  headers     = ["X Key"]
  query       = []
  on_error    = "stael"
  ttl         = "5"
  body {
    types = ["json"]
    max   = "1Mib"
  }
  source "exec" {
    command = "/usr/local/bin/mint acme"
  }
}
secret "SOURCES" {
  hosts = ["api.example.com"]
  source "file" {
    paht = "/run/secrets/x"
  }
}
