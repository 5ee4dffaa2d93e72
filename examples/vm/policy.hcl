# The machine behind vm1: its addresses and its Ethernet address are pinned.
# What comes from any other is refused and recorded as spoofed_source.
sandbox "vm1" {
  ipv6 = true
  match {
    interfaces = ["vm1"]
    cidrs      = ["10.77.5.2/32", "fd77:5::2/128"]
    macs       = ["02:5a:00:00:05:02"]
  }
  allow "deb.debian.org" { schemes = ["http", "https"] }
  allow "api.github.com" { access = "read" }
}
