"""Values: tables and views as stored, and the requests that create and change them."""
