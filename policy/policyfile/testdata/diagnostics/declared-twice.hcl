org {
}
sandbox "ci" {
  limits { connections = 5 }
  limits { connections = 6 }
  mode = "report"
  mode = "enforce"
}
org {
}
sandbox "ci" {
}
secret "API_KEY" {
  hosts = ["api.example.com"]
  ttl   = "5m"
  source "exec" {
    command = ["/usr/local/bin/mint"]
    ttl     = "50m"
  }
  source "env" { name = "API_KEY" }
}
secret "API_KEY" {
  hosts = ["api.example.com"]
  source "env" { name = "API_KEY" }
}
test "same" {
  sandbox = "ci"
  allow   = ["GET https://api.example.com/"]
}
test "same" {
  sandbox = "ci"
  deny    = ["GET https://api.example.com/"]
}
