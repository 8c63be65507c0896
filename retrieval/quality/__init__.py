"""How good recommendation is on interactions that were held out."""
