sandbox "ci" {
  use    = "registries"
  mode   = "reprot"
  ipv6   = "true"
  labels = { team = 5, team = "x", "a b" = "c" }

  match {
    cidrs      = ["10.0.0.1/8", "ten", "::ffff:10.0.0.0/104"]
    interfaces = ["tap["]
    macs       = ["02:00:5e:10:00"]
  }
  allow "a.example.com" {
    methods = "GET"
    paths   = ["/a", 5, null]
    ports   = 8443
    schemes = ["htps"]
    inject  = [API_KEY, "API_KEY", "API_KEY"]
  }
  allow "b.example.com" {
    methods   = ["get"]
    paths     = []
    ports     = [0, 443, 65536, 1.5, "80"]
    access    = "red"
    addresses = []
    websocket = 1
    expires   = "2026-02-30"
    ticket    = ""
  }
  allow "c.example.com" {
    paths   = ["/${version}/x"]
    reason  = file("x")
    alert   = var.severity
    expires = 2026-12-31
    foreign = "stripp"
    scrub   = true && false
  }
  limits {
    requests_per_minute = -1
    connections         = 0
    max_request         = "1mb"
    max_response        = "0MiB"
    bytes_sent_per_day  = "many"
  }
}
