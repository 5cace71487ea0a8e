"""The playground: a page that shows what the server does, for people."""
