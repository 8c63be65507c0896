"""The Amazon Books 2014 logs."""
