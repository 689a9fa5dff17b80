"""How background loops live: written once."""
