"""The parts of the campaign `tenants`: a server, its users, and what one of them does to the others."""
