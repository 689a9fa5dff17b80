"""The HR department's case on real input: 8,000 people are transferred, each is told by mail once, and the books balance."""
