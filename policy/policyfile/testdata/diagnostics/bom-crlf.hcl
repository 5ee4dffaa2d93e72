sandbox "ci" {
  mode = "reprot"
}
