"""The lab notes at the head of each experiment file, and the page that lists them by the papers' figures."""

from pcr_exp.runners.catalogue import main

if __name__ == "__main__":
    main()
