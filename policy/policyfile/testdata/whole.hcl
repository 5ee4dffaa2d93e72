org {
  use           = ["registries"]
  any_host      = true
  public_suffix = true
  metadata      = true
  deny "*.tunnel.example" {
    ports   = [443]
    schemes = ["https"]
    methods = ["POST"]
    paths   = ["/up/**"]
    alert   = "page"
    ticket  = "SEC-1"
    reason  = <<-EOT
      Tunnels are not permitted.
      Ask for help.
    EOT
  }
}

group "registries" {
  dynamic "allow" {
    for_each = { "pypi.org" = "read" }
    iterator = registry
    labels   = [registry.key]
    content { access = registry.value }
  }
}

sandbox "ci" {
  use         = ["registries"]
  mode        = "report"
  ipv6        = true
  credentials = "block"
  labels = {
    team          = "build"
    "cost.centre" = "7"
  }
  match {
    cidrs      = ["10.77.4.0/24", "10.77.5.9", "fd00::/64"]
    interfaces = ["tap*"]
    macs       = ["02:00:5E:10:00:01"]
  }

  # the first rule
  allow "api.example.com" {
    ports         = [443, 8443]
    schemes       = ["https", "http"]
    methods       = ["GET", "PURGE"]
    paths         = ["/v1/**"]
    query         = { format = ["json", "csv"], "page no" = "*" }
    headers       = { X-Env = ["staging"] }
    addresses     = ["10.0.12.0/24"]
    inject        = ["API_KEY"]
    expires       = local.last_day
    websocket     = false
    encoded_slash = true
    foreign       = "block"
    on_leak       = "pass"
    scrub         = false
    ticket        = "SEC-2"
    reason        = "why"
    alert         = "high"
    limits { connections = 2 }
  }
  allow "graph.example.com" {
    graphql {
      operations = ["query"]
      fields     = ["viewer", "repo*"]
      max        = "32KiB"
    }
  }
  allow "mcp.example.com" {
    jsonrpc {
      methods   = ["tools/call"]
      tools     = ["search"]
      responses = true
    }
  }
  git "git.example.com/acme/*" {
    access  = "write"
    foreign = "pass"
    expires = "2026-12-31T18:00:00+01:00"
  }
  tcp "db.example.com:5432" {
    addresses = ["10.0.13.7"]
  }
  tcp "[2001:db8::1]:22" {}
  passthrough "pinned.example.com" {
    ports  = [9443]
    reason = "client pins"
  }
  limits {
    requests_per_minute    = 60
    bytes_sent_per_day     = "10MB"
    bytes_received_per_day = "1GiB"
    connections            = 8
    max_request            = "1 MiB"
    max_response           = 4096
  }
}

secret "API_KEY" {
  hosts       = ["api.example.com"]
  placeholder = "sk_{rand:24}"
  headers     = ["X-Key"]
  query       = ["key"]
  path        = true
  websocket   = true
  set         = true
  on_error    = "stale"
  body {
    types  = ["application/json"]
    max    = "1MiB"
    fields = ["token"]
  }
  source "exec" {
    command = ["/bin/mint", "a b"]
    ttl     = "50m"
    env     = { A = "b" }
  }
}

secret "OTHER" {
  hosts = []
  ttl   = "2d"
  source "vault" {
    address  = "https://vault.example.com"
    kv       = 2
    insecure = false
    renew    = "1s"
  }
}

test "ci reads and cannot write elsewhere" {
  sandbox = "ci"
  now     = "2026-06-01"
  allow   = ["GET https://api.example.com/v1/items"]
  deny    = ["POST https://pypi.org/", "GET http://api.example.com/"]
}
test "the key goes nowhere else" {
  sandbox = "ci"
  request {
    method  = "GET"
    url     = "https://pypi.org/simple/"
    headers = { Authorization = "Bearer $API_KEY" }
    body    = "x"

    resolves = ["192.0.2.7"]
  }
  expect {
    verdict = "deny"
    reason  = "placeholder_leak"
    inject  = []
  }
}

alert "exfiltration" {
  reasons   = ["placeholder_leak", "secret_exfiltration"]
  verdict   = "deny"
  severity  = "critical"
  threshold = 20
  window    = "1m"
  interval  = "10m"
  per       = ["sandbox"]
  distinct  = "host"
  notify    = ["ops"]
}
alert "scanning" {
  detector  = "burst"
  threshold = 50
  notify    = ["ops"]
}
alert "upload" {
  kind      = "http"
  sandbox   = "ci*"
  host      = "*.example.com"
  sum       = "bytes_sent"
  threshold = 1000000000
  window    = "1h"
  notify    = ["ops"]
}
notify "ops" {
  slack { url_secret = "SLACK_WEBHOOK" }
  webhook { url = "https://alerts.example.com/" }
}
mute "works" {
  until     = "2026-12-31T06:00:00Z"
  alerts    = ["exfiltration"]
  reasons   = ["host_not_allowed"]
  sandboxes = ["ci"]
  hosts     = ["api.example.com"]
  reason    = "planned works"
}

locals {
  last_day = "${var.year}-12-31"
}
variable "year" {
  description = "the year in which permissions end"
  default     = "2026"
}
