# Cursor's command line with an API key:
#
#   sallyport run --policy examples/agents/cursor-agent.hcl -- cursor-agent
#
# The client exchanges the key for a token of its own, which it keeps inside
# the sandbox for the session; the key itself stays outside. Left out on
# purpose: downloads.cursor.com and cursor.com (updates; update outside).

secret "CURSOR_API_KEY" {
  hosts = ["api2.cursor.sh"]
  source "env" { name = "CURSOR_API_KEY" }
}

sandbox "cursor-agent" {
  # The exchange of the key: the only request that it is sent with.
  allow "api2.cursor.sh" {
    methods = ["POST"]
    paths   = ["/auth/exchange_user_api_key"]
    inject  = ["CURSOR_API_KEY"]
  }
  # Models, agents and the index of code. The vendor names the whole domain:
  # api2, api3, api5 and names below them, by region and load.
  allow "*.cursor.sh" {
    methods = ["GET", "POST"]
  }
}
