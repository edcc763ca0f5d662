"""How fast the decision service is: a load generator, the servers under test, and what is measured of them."""
