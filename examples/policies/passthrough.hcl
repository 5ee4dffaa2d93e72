# A client that pins its server's certificate does not accept the gateway's. TLS
# to this host is not opened: the name is checked, the bytes are counted, and
# neither requests nor secrets are seen.

sandbox "updater" {
  # The updater pins the certificate of its vendor.
  passthrough "updates.example.com" {
    reason  = "client pins its certificate"
    expires = "2027-06-30" # look again by then
  }
}
