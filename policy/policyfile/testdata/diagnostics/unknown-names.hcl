alow = ["api.example.com"]

sandbx "ci" {}

org {
  anyhost = true
  alow "api.example.com" {}
}

sandbox "ci" {
  moed = "report"
  allow "api.example.com" {
    mehtods = ["GET"]
    cidrs   = ["10.0.0.0/8"]
  }
  passthrough "pinned.example.com" {
    inject = ["API_KEY"]
  }
  alow "pypi.org" {
    access = "read"
  }
  limits {
    request_per_minute = 60
  }
}
