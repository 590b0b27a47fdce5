"""Reports: what runs came to, as pictures and one page. Facts, charts, and where they are put."""
