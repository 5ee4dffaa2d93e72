# The daemon file of sallyport. All of it may be left out.

# capture "containers" {
#   engine = "docker"
# }

# control {
#   group = "adm"                  # whose members may use the control socket
# }
