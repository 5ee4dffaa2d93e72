paths = ["/v1/**"]

allow "api.example.com" {}

sandbox "ci" {
  allow = []
  match = ["10.0.0.0/8"]
  mode {}
  secret "API_KEY" {}
  source "env" {
    name = "API_KEY"
  }
}

group "read" {
  use = ["other"]
}
