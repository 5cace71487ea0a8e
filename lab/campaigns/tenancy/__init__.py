"""The parts of the campaign `tenants`: the attacker, its attacks, and the victims."""
