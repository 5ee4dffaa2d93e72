# The daemon file: one tap for each machine, each in a namespace of its own.
capture "machines" {
  tap     = ["vm1"]
  address = ["10.77.5.1/24", "fd77:5::1/64"] # where the machine finds its default route
  # owner = "qemu"                           # who may open the tap besides root
}
