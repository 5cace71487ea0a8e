"""The playground: a web page that shows what the server can do."""
