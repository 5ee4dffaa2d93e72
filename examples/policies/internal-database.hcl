# A database on a private network, by name. Raw TCP is not looked into, so it
# is allowed by name and port, and a private range must be named: without it,
# a name that resolves to a private address is refused.

org {
  # The only raw TCP that any sandbox may have.
  tcp "db.internal.example.com:5432" {
    addresses = ["10.0.12.0/24"]
  }
}

sandbox "reports" {
  # The reporting replica.
  tcp "db.internal.example.com:5432" {
    addresses = ["10.0.12.0/24"]
    ticket    = "SEC-1432"
  }
}
