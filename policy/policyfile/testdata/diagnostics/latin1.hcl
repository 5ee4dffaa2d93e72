sandbox "ci" {
  # café
}
