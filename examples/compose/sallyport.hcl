capture "containers" {
  engine = "docker"
}
