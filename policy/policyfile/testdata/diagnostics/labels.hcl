org "acme" {
}
sandbox {}
sandbox "a b" {}
group "x" "y" {}
secret "api-key" {
  hosts = []
  source "env" { name = "API_KEY" }
}
sandbox "ci" {
  allow "https://api.example.com/v1/chat" {}
  allow "http://plain.example.com" {}
  allow "" {}
  allow "a.example" "b.example" {}
  tcp "db.example.com" {}
  tcp "db.example.com:0" {}
  tcp "db.example.com:70000" {}
  tcp "2001:db8::1:5432" {}
  git "https://github.com/acme/app.git" {}
  git "github.com/acme" {}
  git "github.com/acme/app.git" {}
  git "github.com/ac*/app" {}
}
