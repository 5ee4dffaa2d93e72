org { allow "api.example.com" {} }

sandbox "a" {
  allow "api.example.com" {
    methods = ["GET"
  }
}

sandbox "b" {
  allow "api.example.com" {
    method = ["GET"]
  }

sandbox "c" {
  source "exec" { command = ["x"] ttl = "5m" }
}

sandbox "d" {
  mod = "report"
}

sandbox "e" {
  mode = 'report'
}

sandbox "f" {
  mod = "report"
