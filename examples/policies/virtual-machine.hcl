# A virtual machine whose tap device sallyport is the default route of. The
# traffic is recognised by its interface and by its source address; a wrong
# source on that interface is refused as spoofed.

sandbox "vm-1" {
  match {
    interfaces = ["tap-vm1"]
    cidrs      = ["10.77.4.2/32"]
  }
  labels = { team = "build" }

  # Packages of the machine's system.
  allow "deb.debian.org" {
    access  = "read"
    schemes = ["http", "https"]
  }
}
